package moonmq

// EnvelopeVersion is the only version there is.
const EnvelopeVersion = 1

// Envelope is what a MoonMQ client finds in the value of a dead record. Perigee
// stores dead records in Kafka's form and makes the envelope when such a client
// reads one:
//
//	u8 version | str topic | u32 partition | u64 offset | u64 timestamp_ms
//	  | str group | u16 attempts | str reason | str value
//
// Strings have no limit of their own here.
type Envelope struct {
	Topic     string // where the record came from
	Partition uint32 // from 1
	Offset    uint64
	Timestamp uint64 // of the original record, milliseconds
	Group     string // the group that gave up
	Attempts  uint16
	Reason    string
	Value     []byte // the original value, plain
}

// AppendEnvelope adds the bytes of e.
func AppendEnvelope(b []byte, e *Envelope) []byte {
	b = appendStr(append(b, EnvelopeVersion), e.Topic)
	b = appendU64(appendU64(appendU32(b, e.Partition), e.Offset), e.Timestamp)
	b = appendStr(appendU16(appendStr(b, e.Group), e.Attempts), e.Reason)
	return appendStr(b, e.Value)
}

// Size is the length of the bytes AppendEnvelope adds.
func (e *Envelope) Size() int {
	return 1 + 4 + len(e.Topic) + 4 + 8 + 8 + 4 + len(e.Group) + 2 + 4 + len(e.Reason) + 4 + len(e.Value)
}

// DecodeEnvelope reads an envelope; Value aliases b.
func DecodeEnvelope(b []byte) (Envelope, error) {
	r := reader{b: b}
	r.need(1, "envelope")
	if v := r.u8(); r.err == nil && v != EnvelopeVersion {
		r.failf("unknown envelope version %d", v)
	}
	limit := len(b)
	e := Envelope{Topic: r.str(limit)}
	r.need(20, "envelope")
	e.Partition, e.Offset, e.Timestamp = r.u32(), r.u64(), r.u64()
	e.Group = r.str(limit)
	r.need(2, "envelope")
	e.Attempts = r.u16()
	e.Reason, e.Value = r.str(limit), r.bytes(limit)
	if r.err != nil {
		return Envelope{}, r.err
	}
	return e, nil
}
