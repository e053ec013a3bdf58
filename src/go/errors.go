package leaseway

import (
	"fmt"
	"math"
	"strings"
	"unicode/utf8"

	"github.com/leaseway/leaseway/src/go/internal/limiter"
)

// ErrClosed says that the client, or the last handle of the resource, was closed. Nothing was taken.
var ErrClosed = limiter.ErrClosed

// OptionError says which setting of a client or resource, or which argument, is invalid, and what is expected.
type OptionError struct {
	// Setting is the name of the setting or argument, such as "wants".
	Setting string
	Why     string
	cause   error
}

func (e *OptionError) Error() string {
	return fmt.Sprintf("leaseway: invalid %s: %s", e.Setting, e.Why)
}

// Unwrap returns the error of a file, or nil.
func (e *OptionError) Unwrap() error { return e.cause }

func badOption(setting, format string, args ...any) *OptionError {
	return &OptionError{Setting: setting, Why: fmt.Sprintf(format, args...)}
}

// badFile says that the file of a setting cannot be used.
func badFile(setting string, err error) *OptionError {
	return &OptionError{Setting: setting, Why: err.Error(), cause: err}
}

// KindError says that a resource is open as another kind already. All handles of a resource have the same kind.
type KindError struct {
	Resource string
	// Is and Asked are "rate", "gauge", "budget" or "resource without a limiter".
	Is    string
	Asked string
}

func (e *KindError) Error() string {
	return fmt.Sprintf("leaseway: resource %q is already open as a %s: it cannot also be opened as a %s", e.Resource, e.Is, e.Asked)
}

// NotReadyError says which resources have no lease yet, and why. The client keeps trying.
type NotReadyError struct {
	Resources []string
	// Why is the error of the last failed request, or says that no request has failed.
	Why string
	// cause is the error of the context that ended first.
	cause error
}

func (e *NotReadyError) Error() string {
	const maxNamed = 5
	named := make([]string, 0, maxNamed)
	for _, id := range e.Resources[:min(len(e.Resources), maxNamed)] {
		named = append(named, fmt.Sprintf("%q", id))
	}
	more := ""
	if len(e.Resources) > maxNamed {
		more = fmt.Sprintf(" and %d more", len(e.Resources)-maxNamed)
	}
	return fmt.Sprintf("leaseway: no lease yet for %s%s: %s", strings.Join(named, ", "), more, e.Why)
}

// Unwrap returns the error of the context that ended first.
func (e *NotReadyError) Unwrap() error { return e.cause }

// DebtExceededError says that a charge exceeded the maximum debt. The part up to the maximum was charged.
type DebtExceededError struct {
	// Uncharged has the permits that were not charged.
	Uncharged int
	MaxDebt   int
}

func (e *DebtExceededError) Error() string {
	return fmt.Sprintf("leaseway: maximum debt of %d exceeded: %d permits were not charged", e.MaxDebt, e.Uncharged)
}

const (
	// maxIDBytes is the bound of servers.
	maxIDBytes = 256
	// maxWants is the bound of servers.
	maxWants = 1e15
)

func checkID(setting, id string) error {
	switch {
	case id == "":
		return badOption(setting, "it is empty")
	case len(id) > maxIDBytes:
		return badOption(setting, "it is %d bytes long; at most %d are allowed", len(id), maxIDBytes)
	case !utf8.ValidString(id):
		return badOption(setting, "%q is not valid UTF-8", id)
	}
	return nil
}

func checkMode(mode Mode) error {
	if mode < Safe || mode > Optimistic {
		return badOption("mode", "%d is none of Safe, Pessimistic and Optimistic", int(mode))
	}
	return nil
}

func checkWants(wants float64) error {
	// Also false for NaN.
	if wants >= 0 && wants <= maxWants {
		return nil
	}
	return badOption("wants", "%g is not a number from 0 to %g", wants, float64(maxWants))
}

// wholeNumber returns a number of permits that was given as one of several numbers, some of which may be amounts.
func wholeNumber(n float64) (uint64, error) {
	if n >= 0 && n < 1<<63 && n == math.Trunc(n) {
		return uint64(n), nil
	}
	return 0, badOption("number of permits", "%g is negative, or no whole number", n)
}

func checkCount(n int) (uint64, error) {
	if n < 0 {
		return 0, badOption("number of permits", "%d is negative", n)
	}
	return uint64(n), nil
}

// toInt converts a number of permits. An int may have 32 bits.
func toInt(n uint64) int { return int(min(n, math.MaxInt)) }
