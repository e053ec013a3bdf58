package session

import "slices"

const (
	// maxRedirects is the maximum number of redirects in a row.
	maxRedirects = 5
	// maxLearntPeers is the maximum number of learnt peers. Further ones are ignored.
	maxLearntPeers = 64
)

// route chooses the server: one of the configured or learnt endpoints, or the master that they name. It stays with a
// master that answers, and goes round the endpoints while none does.
type route struct {
	// endpoints has the configured endpoints, at least one, followed by the learnt ones.
	endpoints []string
	given     int
	// tried is the index of the endpoint that was tried last.
	tried  int
	target string
	// redirects counts the redirects since a master last answered.
	redirects int
}

// newRoute returns a route that begins with the endpoint that first selects. It is random, so that clients do not all
// begin with the same server.
func newRoute(endpoints []string, first uint64) route {
	if len(endpoints) == 0 {
		panic("session: no endpoint")
	}
	tried := int(first % uint64(len(endpoints)))
	return route{endpoints: slices.Clone(endpoints), given: len(endpoints), tried: tried, target: endpoints[tried]}
}

// learn replaces the learnt peers.
func (r *route) learn(peers []string) {
	r.endpoints = r.endpoints[:r.given]
	for _, peer := range peers {
		if len(r.endpoints) >= r.given+maxLearntPeers {
			return
		}
		if !slices.Contains(r.endpoints, peer) {
			r.endpoints = append(r.endpoints, peer)
		}
	}
}

func (r *route) succeeded() { r.redirects = 0 }

// redirected reports that the target names this master. It returns whether to go there at once. If not, the redirect
// counts as a failure: servers that name themselves or each other are asked again only after a pause.
func (r *route) redirected(master string) bool {
	r.redirects++
	if r.target == master || r.redirects > maxRedirects {
		return false
	}
	r.target = master
	return true
}

// failed moves on to the next endpoint.
func (r *route) failed() {
	r.redirects = 0
	r.tried = (r.tried + 1) % len(r.endpoints)
	r.target = r.endpoints[r.tried]
}
