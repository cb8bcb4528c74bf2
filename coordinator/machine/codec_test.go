package machine

import (
	"errors"
	"testing"
)

func TestReaderReadsWhatTheWriterWrote(t *testing.T) {
	var w Writer
	text := "twelve"
	w.Int16(3)
	w.Int8(-1)
	w.Bool(true)
	w.Int32(1 << 30)
	w.Int64(-1 << 60)
	w.String("plain")
	w.NullableString(nil)
	w.NullableString(&text)
	w.Blob([]byte{1, 2})
	w.CompactString("compact")
	w.CompactNullableString(nil)
	w.CompactNullableString(&text)
	w.CompactBlob([]byte{3})
	w.Raw([]byte{9, 9})
	w.NoTags()

	r := NewReader(w.Bytes())
	check := func(name string, ok bool) {
		t.Helper()
		if !ok {
			t.Errorf("%s differs", name)
		}
	}
	check("int16", r.Int16() == 3)
	check("int8", r.Int8() == -1)
	check("bool", r.Bool())
	check("int32", r.Int32() == 1<<30)
	check("int64", r.Int64() == -1<<60)
	check("string", r.String() == "plain")
	check("null string", r.NullableString() == nil)
	check("nullable string", *r.NullableString() == text)
	check("blob", string(r.Blob()) == "\x01\x02")
	check("compact string", r.CompactString() == "compact")
	check("compact null", r.CompactNullableString() == nil)
	check("compact nullable", *r.CompactNullableString() == text)
	check("compact blob", string(r.CompactBlob()) == "\x03")
	var raw [2]byte
	r.Raw(raw[:])
	check("raw", raw == [2]byte{9, 9})
	r.SkipTags()
	if r.Err() != nil || r.Len() != 0 {
		t.Fatalf("%v, %d bytes left", r.Err(), r.Len())
	}
}

func TestReaderRefusesImpossibleFields(t *testing.T) {
	for name, read := range map[string]func(r *Reader){
		"long string":         func(r *Reader) { _ = r.String() },
		"long compact string": func(r *Reader) { r.CompactString() },
		"long blob":           func(r *Reader) { r.Blob() },
		"long array":          func(r *Reader) { r.Count(1) },
		"long compact array":  func(r *Reader) { r.CompactCount(4) },
		"long raw":            func(r *Reader) { r.Raw(make([]byte, 9)) },
		"own complaint":       func(r *Reader) { r.Fail("state %d", 9) },
	} {
		t.Run(name, func(t *testing.T) {
			r := NewReader([]byte{0x7f, 0xff, 0xff, 0xff, 1, 2})
			read(r)
			if !errors.Is(r.Err(), ErrMalformed) {
				t.Fatalf("%v, want %v", r.Err(), ErrMalformed)
			}
			if r.Int64() != 0 || r.String() != "" {
				t.Fatal("a failed reader returned data")
			}
		})
	}
}

func FuzzReader(f *testing.F) {
	f.Add([]byte{0, 1, 'a', 2, 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		r := NewReader(b)
		for range r.Count(2) {
			r.CompactString()
			r.NullableString()
			r.SkipTags()
		}
		if r.Err() == nil && r.Len() > len(b) {
			t.Fatal("grew")
		}
	})
}
