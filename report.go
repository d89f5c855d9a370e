package lastword

// Report is what a resource tells the authority: there is a fence that the authority
// does not know to have issued, or issued twice (R10). It is evidence, and counts only
// with the signed grant of that fence.
type Report struct {
	Resource Resource
	Grant    string // the signed grant of the fence
	Reporter string // who tells; replaced by the authenticated identity where there is one
}

// ReportAnswer is what the authority makes of a [Report].
type ReportAnswer struct {
	// Counted says that the grant contradicts what the authority knows: it grants and
	// renews nothing of the resource until an operator confirms, a report repeated
	// included.
	Counted bool
	// Fence is the highest one reported of the resource, 0 if none stops it.
	Fence Token
}
