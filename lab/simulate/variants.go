package simulate

import "github.com/lastword/lastword/model"

// elsewhere is what a variant shows here, where that is not what the model names.
var elsewhere = map[string]string{
	// Owners here share one row of work: the second holder of a number goes on where
	// the first one stopped, so what meets is the number itself.
	"rollback-issuer": numberIssuedTwice,
	// And each numbers its writes from 1: who comes second under a number that was
	// rounded is told that its first write is out of turn, long before anything is
	// overwritten.
	"number-as-float": numberOutOfTurn,
}

// ShowsAs is the violation by which a variant is found here.
func ShowsAs(v model.Variant) string {
	if kind, ok := elsewhere[v.Name]; ok {
		return kind
	}
	return v.Property
}
