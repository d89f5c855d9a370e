package simulate

// publish makes the trust bundle of an epoch.
func (w *world) publish(epoch uint32) {
	if epoch > w.bundle.current {
		w.oldBundle = w.bundle
		w.bundle.current = epoch
		w.bundle.sequence++
	}
}

// rotate adds a key and signs with it; the old ones are still believed (R13).
func (w *world) rotate(f *fault) {
	if int(w.bundle.keys) >= 3 {
		return
	}
	w.oldBundle = w.bundle
	w.bundle.keys++
	w.bundle.sequence++
	w.note(noteKey, actorOperator, -1, uint64(w.bundle.keys), "")
	w.effect(f)
}

// raiseMinimum revokes the issuer epochs below the present one, and lets the resource
// know.
func (w *world) raiseMinimum(f *fault) {
	w.oldBundle = w.bundle
	w.bundle.minimum = w.bundle.current
	w.bundle.sequence++
	if w.place.late < w.now {
		w.place.bundle = w.bundle
	}
	w.note(noteBundle, actorResource, -1, w.bundle.sequence, "")
	w.effect(f)
	w.disturbed(2 * ttl)
}

// lateEpoch begins a new epoch while the resource does not get its bundle: a process is
// killed and starts again.
func (w *world) lateEpoch(f *fault) {
	if p := &w.procs[f.arg>>6&1]; p.up && !w.twoStores {
		w.crashProc(p, false, 5*ms)
	}
}

// rollBundle puts an old trust bundle back at the resource. Its program starts anew, so
// that only the records know that there was a newer one.
func (w *world) rollBundle(f *fault) {
	old := bundle{sequence: 1}
	if w.place.bundle.sequence <= old.sequence {
		w.publishAgain()
		w.laterFault(f)
		return
	}
	w.place.bundle = old
	if w.seal != nil {
		w.seal.forget()
	}
	if w.gate != nil {
		w.gate.forget()
		w.effect(f)
	}
	w.note(noteBundle, actorResource, -1, old.sequence, "")
}

// publishAgain is a bundle with nothing new but its sequence, that the resource gets.
func (w *world) publishAgain() {
	w.oldBundle = w.bundle
	w.bundle.sequence++
	if w.place.late < w.now {
		w.place.bundle = w.bundle
	}
}
