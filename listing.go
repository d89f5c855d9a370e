package lastword

// ListQuery asks for one page of resources, in byte order.
type ListQuery struct {
	// Prefix is what their ids begin with, byte by byte: "doc/" is what is below doc,
	// "doc" is also doc itself and docs. No character has a special meaning, and no
	// case, accent or form is folded (KF-27). "" is all.
	Prefix string
	// After is where the page before ended: its Next. "" begins.
	After Resource
	// Limit is how many are shown at most. 0 is [DefaultPage]; more than [MaxPage]
	// is MaxPage.
	Limit int
	// All shows the resources that nobody holds, too.
	All bool
}

// The bounds of [ListQuery.Limit].
const (
	DefaultPage = 100
	MaxPage     = 1000
)

// Page is the answer to a [ListQuery]. It may be empty although more follow.
type Page struct {
	// Resources are what is shown. No tenure has its ids there, and no ending its
	// result: the status of the one resource has.
	Resources []Status
	// Next is the After of the next page, "" if this was the last one.
	Next Resource
}

// Sight is what a watch shows: one resource as it is, or that every resource has
// been shown once.
type Sight struct {
	Status Status // as on a [Page], without Waiters; empty if Complete is set
	// Complete comes once: what was there when the watch began has been shown, and
	// what follows are changes.
	Complete bool
}

// CheckPrefix reports whether s may be the prefix of a list or a watch: "", or at
// most [MaxIDBytes] bytes of UTF-8 without control characters. It need not be a
// resource. The error has [CodeInvalid].
func CheckPrefix(s string) error {
	if s == "" {
		return nil
	}
	return CheckID("prefix", s)
}
