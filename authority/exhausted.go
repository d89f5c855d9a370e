package authority

import (
	"log/slog"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/internal/core"
)

// Seven of eight numbers used is when an operator is told (R11): at a thousand grants a
// second of one resource there are twelve days left then.
const (
	alarmCounter = lastword.MaxCounter - lastword.MaxCounter/8
	alarmEpoch   = lastword.MaxEpoch - lastword.MaxEpoch/8
)

// used notes how high counters are by now. It warns once an epoch.
func (l *loop) used(rec core.Record) {
	if rec.Epoch != l.header.Epoch || rec.Counter <= l.counter {
		return
	}
	before := l.counter
	l.counter = rec.Counter
	if before <= alarmCounter && rec.Counter > alarmCounter {
		l.cfg.Logger.Warn("the fences of this issuer epoch are running out; begin a new one with 'lastword epoch advance', or restart",
			slog.String("resource", string(rec.Resource)), slog.Uint64("left", lastword.MaxCounter-rec.Counter))
	}
}

// warnOfEpochs warns at each start, and at each epoch that another process has begun.
func (l *loop) warnOfEpochs() {
	if e := l.header.Epoch; e > alarmEpoch {
		l.cfg.Logger.Warn("the issuer epochs of this domain are running out; each start takes one",
			slog.Uint64("left", uint64(lastword.MaxEpoch-e)))
	}
}

// exhausted is the error of an acquire for which there is no number.
func exhausted(h core.Header) error {
	if h.Epoch >= lastword.MaxEpoch {
		return &lastword.Error{
			Code: lastword.CodeExhausted, Message: "the last fence of the last issuer epoch is used", Hint: "a new domain is the way out",
		}
	}
	return &lastword.Error{
		Code: lastword.CodeExhausted, Message: "the counter of this issuer epoch is used up",
		Hint: "begin a new one, in which it starts again: lastword epoch advance",
	}
}
