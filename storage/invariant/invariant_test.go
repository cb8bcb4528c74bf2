package invariant

import "testing"

func TestAViolationNamesTheNumbers(t *testing.T) {
	defer func() {
		v, ok := recover().(*Violation)
		if !ok || v.Error() != "BUG: start above high: 7 3" {
			t.Errorf("recovered %v", v)
		}
	}()
	Check(true, "never")
	Check(7 <= 3, "start above high", 7, 3)
	t.Error("went on")
}

func TestAHandlerTakesThePlaceOfThePanic(t *testing.T) {
	var got *Violation
	SetHandler(func(v *Violation) { got = v })
	defer SetHandler(nil)
	Check(false, "x")
	if got == nil || got.Error() != "BUG: x" {
		t.Errorf("handled %v", got)
	}
}

func TestACheckThatHoldsCostsNothing(t *testing.T) {
	n := int64(5)
	if allocs := testing.AllocsPerRun(100, func() { Check(n > 0, "n", n, n) }); allocs != 0 {
		t.Errorf("%v allocations", allocs)
	}
}
