package report

// meanings say in a sentence what a gate or a counter is about.
var meanings = map[string]string{
	"stale_accepted":         "writes with an older fence that were accepted after one with a newer fence",
	"forged_accepted":        "forged or tampered grants, or calls in another tenure's name, that were accepted",
	"highwater_polluted":     "records that a failed proof changed",
	"segment_jumps_accepted": "tenures whose accepted writes leave a number out",
	"checked_mutations":      "writes with a receipt of a tenure that was really granted",
	"unknown_open":           "writes of which nobody can say in the end whether they happened",
	"handover_p99_ms":        "99 % of hand-overs after a release took at most so long (calm last phase)",
	"handover_crash_p99_ms":  "99 % of hand-overs after a crash came at most so long after the TTL",
	"fault_coverage":         "a fault that was planned and changed nothing proves nothing",
	"faults_with_effect":     "a fault that was planned and changed nothing proves nothing",
	"violations":             "properties of the model that were violated, beside those above",
	"not_linearizable":       "resources whose history no order of its operations explains (porcupine)",
	"checker_timeouts":       "histories that were not checked to the end",
	"history_wrong":          "promises to one holder that contradict those to another",
	"store_wrong":            "acknowledged answers that the authority's store does not have",
	"effect_twice":           "operations that had their effect more than once",
	"receipt_without_effect": "receipts without the business row they are for",
	"document_differs":       "documents that are not what their last effect made them",
	"acknowledged_lost":      "acknowledged writes without their receipt",
	"request_granted_twice":  "request ids that were granted two fences",
	"accepted_unasked":       "writes accepted although the authority could not be asked",
	"woke_holding":           "holders that believed in their lease after it was another's",
	"policy_went_back":       "policies of an older generation that came back into force",
	"not_live":               "rounds without a fault that did not come to their end in time",
	"rounds":                 "rounds that were played to their end",
}

// Meaning is a sentence about a gate or a counter, "" if there is none.
func Meaning(name string) string { return meanings[name] }
