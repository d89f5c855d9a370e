package fencetest_test

import (
	"testing"

	"github.com/lastword/lastword/fence/fencetest"
)

func TestTheReferencePlaceKeepsEveryRule(t *testing.T) { fencetest.Run(t, fencetest.Memory()) }

func BenchmarkMemory(b *testing.B) { fencetest.RunBenchmarks(b, fencetest.Memory()) }
