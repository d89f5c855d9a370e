package fencetest

import "slices"

// cases are all rules that the kit proves, in the order of the protocol.
func cases() []testCase {
	return slices.Concat(fencingCases(), proofCases(), statusCases(), intentCases(),
		orderCases(), atomicCases(), exchangeCases(), recordCases(), evidenceCases(), sealCases(), operatorCases(), shadowCases(), nameCases(),
		apartCases(), retentionCases(),
		tableCases(), historyCases())
}

func needsWithin(s Subject) string {
	if s.Within == nil {
		return "transaction of the caller's own (Within)"
	}
	return ""
}

func needsShadow(s Subject) string {
	if s.Shadow == nil || s.Enforce == nil {
		return "roll-out of a resource (Shadow, Enforce)"
	}
	return ""
}

func needsOperator(s Subject) string {
	if s.Release == nil || s.Restored == nil || s.Reopen == nil {
		return "acts of operators (Release, Restored, Reopen)"
	}
	return ""
}

func needsExchange(s Subject) string {
	if s.Exchange == nil {
		return "bare conditional write (Exchange)"
	}
	return ""
}

func needsPrune(s Subject) string {
	if s.Prune == nil {
		return "pruning of receipts (Prune)"
	}
	return ""
}

func needsClose(s Subject) string {
	if s.Close == nil {
		return "closing of a record (Close)"
	}
	return ""
}

func needsLose(s Subject) string {
	if s.Lose == nil {
		return "loss of a record (Lose)"
	}
	return ""
}
