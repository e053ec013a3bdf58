package leasewayotel

import (
	"sync"

	leaseway "github.com/leaseway/leaseway/src/go"
)

// maxSeries is the maximum number of resources with series of their own, because names may come from untrusted requests.
const maxSeries = 1000

// series remembers which resources have series of their own, so that a resource keeps them while it is open.
type series struct {
	mu    sync.Mutex
	named map[string]struct{}
}

// choose returns the resources with series of their own, and the number of the others.
func (s *series) choose(resources []leaseway.ResourceStats) (chosen []leaseway.ResourceStats, unlisted int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	kept := make(map[string]struct{}, min(len(resources), maxSeries))
	for n := range resources {
		if _, has := s.named[resources[n].Name]; has {
			kept[resources[n].Name] = struct{}{}
		}
	}
	for n := range resources {
		name := resources[n].Name
		if _, has := kept[name]; !has {
			if len(kept) >= maxSeries {
				unlisted++
				continue
			}
			kept[name] = struct{}{}
		}
		chosen = append(chosen, resources[n])
	}
	s.named = kept
	return chosen, unlisted
}
