package moonmq

import "errors"

// ErrUnknownOp is returned for an op that is not in the table of the direction
// being decoded.
var ErrUnknownOp = errors.New("unknown op")

// DecodeRequest decodes the payload of a client's frame. The error is
// ErrUnknownOp or a *DecodeError.
func DecodeRequest(op Op, payload []byte) (Message, error) {
	decode, ok := requestDecoders[op]
	if !ok {
		return nil, ErrUnknownOp
	}
	r := reader{b: payload}
	m := decode(&r)
	if r.err != nil {
		return nil, r.err
	}
	return m, nil
}

var requestDecoders = map[Op]func(*reader) Message{
	OpHello: func(r *reader) Message {
		r.need(4, "hello")
		return &Hello{Version: r.u32()}
	},
	OpAuth: func(r *reader) Message {
		return &Auth{Username: r.str(MaxName), Password: r.str(MaxPassword)}
	},
	OpProduce:   decodeProduce,
	OpFetch:     decodeFetch,
	OpSubscribe: decodeSubscribe,
	OpCommit: func(r *reader) Message {
		m := &Commit{Topic: r.str(MaxTopicName)}
		r.need(12, "commit")
		m.Partition, m.Offset = r.u32(), r.u64()
		return m
	},
	OpCreateTopic: func(r *reader) Message {
		m := &CreateTopic{Name: r.str(MaxTopicName)}
		r.need(4, "create_topic")
		m.Partitions = r.u32()
		return m
	},
	OpListTopics:    func(*reader) Message { return &ListTopics{} },
	OpGoodbye:       func(*reader) Message { return &Goodbye{} },
	OpHeartbeatReq:  func(*reader) Message { return &HeartbeatReq{} },
	OpHeartbeatResp: func(*reader) Message { return &HeartbeatResp{} },
	OpIdentifyClient: func(r *reader) Message {
		return &IdentifyClient{Name: r.str(MaxClientName), Version: r.str(MaxClientVersion)}
	},
	OpInitProducerID: func(r *reader) Message {
		if len(r.b) == 0 {
			return &InitProducerID{}
		}
		return &InitProducerID{Name: r.str(MaxName), Payload: true}
	},
	OpProduceIdempotent: decodeProduceIdempotent,
	OpJoinGroup:         decodeJoinGroup,
	OpLeaveGroup: func(r *reader) Message {
		return &LeaveGroup{Group: r.str(MaxName), Member: r.str(MaxName)}
	},
	OpGroupHeartbeat: func(r *reader) Message {
		return &GroupHeartbeat{Group: r.str(MaxName), Member: r.str(MaxName)}
	},
	OpBeginTxn: func(*reader) Message { return &BeginTxn{} },
	OpEndTxn: func(r *reader) Message {
		r.need(1, "end_txn")
		return &EndTxn{Commit: r.u8() != 0}
	},
	OpTxnOffsetCommit: decodeTxnOffsetCommit,
	OpNack: func(r *reader) Message {
		m := &Nack{Topic: r.str(MaxTopicName)}
		r.need(12, "nack")
		m.Partition, m.Offset = r.u32(), r.u64()
		m.Reason = r.str(MaxNackReason)
		return m
	},
	OpProduceBatch:  decodeProduceBatch,
	OpListOffsets:   decodeListOffsets,
	OpDeleteTopic:   func(r *reader) Message { return &DeleteTopic{Name: r.str(MaxTopicName)} },
	OpDescribeTopic: func(r *reader) Message { return &DescribeTopic{Name: r.str(MaxTopicName)} },
	OpAlterTopicConfig: func(r *reader) Message {
		m := &AlterTopicConfig{Name: r.str(MaxTopicName)}
		n := r.count("alter_topic_config count", "config entries", MaxConfigEntries)
		m.Config = decodeConfig(r, n)
		return m
	},
	OpListGroups:    func(*reader) Message { return &ListGroups{} },
	OpDescribeGroup: func(r *reader) Message { return &DescribeGroup{Group: r.str(MaxName)} },
	OpDeleteGroup:   func(r *reader) Message { return &DeleteGroup{Group: r.str(MaxName)} },
	OpAuthScram: func(r *reader) Message {
		return &AuthScram{Mechanism: r.str(MaxMechanism), Message: r.str(MaxSASLMessage)}
	},
	OpAuthScramFinal: func(r *reader) Message {
		return &AuthScramFinal{Message: r.str(MaxSASLMessage)}
	},
	OpCreatePartitions: func(r *reader) Message {
		m := &CreatePartitions{Name: r.str(MaxTopicName)}
		r.need(4, "create_partitions")
		m.Total = r.u32()
		return m
	},
}

func decodeKeyValue(r *reader) KeyValue {
	return KeyValue{Key: r.bytes(MaxString), Value: r.bytes(MaxString)}
}

func decodeProduce(r *reader) Message {
	r.need(1, "produce header")
	m := &Produce{Codec: Codec(r.u8()), Topic: r.str(MaxTopicName), KeyValue: decodeKeyValue(r)}
	m.Headers = decodeTrailingHeaders(r)
	return m
}

func decodeProduceIdempotent(r *reader) Message {
	r.need(15, "produce_idempotent header")
	m := &ProduceIdempotent{PID: r.u64(), Seq: r.u32(), Epoch: r.u16(), Codec: Codec(r.u8())}
	m.Topic = r.str(MaxTopicName)
	m.KeyValue = decodeKeyValue(r)
	m.Headers = decodeTrailingHeaders(r)
	return m
}

func decodeFetch(r *reader) Message {
	m := &Fetch{Topic: r.str(MaxTopicName), Group: r.str(MaxName)}
	r.need(4, "fetch")
	m.MaxRecords = r.u32()
	if r.err == nil && len(r.b) > 0 {
		m.Isolation, m.Trailers = Isolation(r.u8()), 1
	}
	if r.err == nil && len(r.b) > 0 {
		m.Flags, m.Trailers = FetchFlags(r.u8()), 2
	}
	return m
}

func decodeSubscribe(r *reader) Message {
	m := &Subscribe{Topic: r.str(MaxTopicName), Group: r.str(MaxName)}
	if r.err == nil && len(r.b) > 0 {
		m.Isolation, m.Trailers = Isolation(r.u8()), 1
	}
	return m
}

func decodeJoinGroup(r *reader) Message {
	m := &JoinGroup{Group: r.str(MaxName), Member: r.str(MaxName)}
	n := r.count("join_group topic count", "topics", MaxJoinTopics)
	if r.err == nil && n == 0 {
		r.failf("join_group requires at least one topic")
	}
	m.Topics = make([]string, 0, r.room(n, 4))
	for range n {
		if r.err != nil {
			break
		}
		m.Topics = append(m.Topics, r.str(MaxTopicName))
	}
	return m
}

func decodeTxnOffsetCommit(r *reader) Message {
	m := &TxnOffsetCommit{Group: r.str(MaxName)}
	n := r.count("txn_offset_commit count", "offsets", MaxTxnOffsets)
	m.Offsets = make([]TxnOffset, 0, r.room(n, 16))
	for range n {
		if r.err != nil {
			break
		}
		o := TxnOffset{Topic: r.str(MaxString)}
		r.need(12, "txn_offset entry")
		o.Partition, o.Offset = r.u32(), r.u64()
		m.Offsets = append(m.Offsets, o)
	}
	return m
}

func decodeProduceBatch(r *reader) Message {
	r.need(2, "produce_batch header")
	m := &ProduceBatch{Flags: BatchFlags(r.u8()), Codec: Codec(r.u8()), Topic: r.str(MaxTopicName)}
	if m.Idempotent() {
		r.need(14, "produce_batch producer header")
		m.PID, m.BaseSeq, m.Epoch = r.u64(), r.u32(), r.u16()
	}
	n := r.count("produce_batch count", "records", MaxBatchRecords)
	if r.err == nil && n == 0 {
		r.failf("produce_batch with no records")
	}
	if n*8 > len(r.b) {
		r.failf("produce_batch count %d exceeds payload", n)
	}
	if r.err != nil {
		return m
	}
	m.Records = make([]KeyValue, n)
	for i := range m.Records {
		if m.Records[i] = decodeKeyValue(r); r.err != nil {
			break
		}
	}
	return m
}

func decodeListOffsets(r *reader) Message {
	m := &ListOffsets{Topic: r.str(MaxTopicName)}
	if r.err != nil || len(r.b) == 0 {
		return m
	}
	m.Mode, m.Trailers = OffsetsMode(r.u8()), 1
	switch m.Mode {
	case OffsetsBounds:
	case OffsetsForTime:
		if len(r.b) < 8 {
			r.failf("list_offsets: timestamp mode without a timestamp")
		}
		m.Timestamp = r.u64()
	default:
		r.failf("list_offsets: unknown mode %d", m.Mode)
	}
	return m
}

func decodeConfig(r *reader, n int) []ConfigEntry {
	config := make([]ConfigEntry, 0, r.room(n, 8))
	for range n {
		if r.err != nil {
			break
		}
		config = append(config, ConfigEntry{Key: r.str(MaxConfigKey), Value: r.str(MaxConfigValue)})
	}
	return config
}

func (m *Hello) appendPayload(b []byte) []byte { return appendU32(b, m.Version) }
func (m *Auth) appendPayload(b []byte) []byte {
	return appendStr(appendStr(b, m.Username), m.Password)
}

func (m *KeyValue) appendTo(b []byte) []byte { return appendStr(appendStr(b, m.Key), m.Value) }

func (m *Produce) appendPayload(b []byte) []byte {
	b = appendStr(append(b, byte(m.Codec)), m.Topic)
	return m.Headers.appendTrailing(m.KeyValue.appendTo(b))
}

func (m *Fetch) appendPayload(b []byte) []byte {
	b = appendU32(appendStr(appendStr(b, m.Topic), m.Group), m.MaxRecords)
	return append(b, []byte{byte(m.Isolation), byte(m.Flags)}[:m.Trailers]...)
}

func (m *Subscribe) appendPayload(b []byte) []byte {
	b = appendStr(appendStr(b, m.Topic), m.Group)
	return append(b, []byte{byte(m.Isolation)}[:m.Trailers]...)
}

func (m *Commit) appendPayload(b []byte) []byte {
	return appendU64(appendU32(appendStr(b, m.Topic), m.Partition), m.Offset)
}

func (m *CreateTopic) appendPayload(b []byte) []byte {
	return appendU32(appendStr(b, m.Name), m.Partitions)
}

func (*ListTopics) appendPayload(b []byte) []byte    { return b }
func (*Goodbye) appendPayload(b []byte) []byte       { return b }
func (*HeartbeatReq) appendPayload(b []byte) []byte  { return b }
func (*HeartbeatResp) appendPayload(b []byte) []byte { return b }
func (*BeginTxn) appendPayload(b []byte) []byte      { return b }
func (*ListGroups) appendPayload(b []byte) []byte    { return b }

func (m *IdentifyClient) appendPayload(b []byte) []byte {
	return appendStr(appendStr(b, m.Name), m.Version)
}

func (m *InitProducerID) appendPayload(b []byte) []byte {
	if !m.Payload {
		return b
	}
	return appendStr(b, m.Name)
}

func (m *ProduceIdempotent) appendPayload(b []byte) []byte {
	b = appendU16(appendU32(appendU64(b, m.PID), m.Seq), m.Epoch)
	b = appendStr(append(b, byte(m.Codec)), m.Topic)
	return m.Headers.appendTrailing(m.KeyValue.appendTo(b))
}

func (m *JoinGroup) appendPayload(b []byte) []byte {
	b = appendU32(appendStr(appendStr(b, m.Group), m.Member), uint32(len(m.Topics)))
	for _, t := range m.Topics {
		b = appendStr(b, t)
	}
	return b
}

func (m *LeaveGroup) appendPayload(b []byte) []byte {
	return appendStr(appendStr(b, m.Group), m.Member)
}

func (m *GroupHeartbeat) appendPayload(b []byte) []byte {
	return appendStr(appendStr(b, m.Group), m.Member)
}

func (m *EndTxn) appendPayload(b []byte) []byte { return append(b, oneIf(m.Commit)) }

func (m *TxnOffsetCommit) appendPayload(b []byte) []byte {
	b = appendU32(appendStr(b, m.Group), uint32(len(m.Offsets)))
	for _, o := range m.Offsets {
		b = appendU64(appendU32(appendStr(b, o.Topic), o.Partition), o.Offset)
	}
	return b
}

func (m *Nack) appendPayload(b []byte) []byte {
	b = appendU64(appendU32(appendStr(b, m.Topic), m.Partition), m.Offset)
	return appendStr(b, m.Reason)
}

func (m *ProduceBatch) appendPayload(b []byte) []byte {
	b = appendStr(append(b, byte(m.Flags), byte(m.Codec)), m.Topic)
	if m.Idempotent() {
		b = appendU16(appendU32(appendU64(b, m.PID), m.BaseSeq), m.Epoch)
	}
	b = appendU32(b, uint32(len(m.Records)))
	for i := range m.Records {
		b = m.Records[i].appendTo(b)
	}
	return b
}

func (m *ListOffsets) appendPayload(b []byte) []byte {
	b = appendStr(b, m.Topic)
	if m.Trailers > 0 {
		b = append(b, byte(m.Mode))
	}
	if m.Mode == OffsetsForTime {
		b = appendU64(b, m.Timestamp)
	}
	return b
}

func (m *DeleteTopic) appendPayload(b []byte) []byte   { return appendStr(b, m.Name) }
func (m *DescribeTopic) appendPayload(b []byte) []byte { return appendStr(b, m.Name) }

func (m *AlterTopicConfig) appendPayload(b []byte) []byte {
	return appendConfig(appendStr(b, m.Name), m.Config)
}

func appendConfig(b []byte, config []ConfigEntry) []byte {
	b = appendU32(b, uint32(len(config)))
	for _, e := range config {
		b = appendStr(appendStr(b, e.Key), e.Value)
	}
	return b
}

func (m *DescribeGroup) appendPayload(b []byte) []byte { return appendStr(b, m.Group) }
func (m *DeleteGroup) appendPayload(b []byte) []byte   { return appendStr(b, m.Group) }

func (m *AuthScram) appendPayload(b []byte) []byte {
	return appendStr(appendStr(b, m.Mechanism), m.Message)
}

func (m *AuthScramFinal) appendPayload(b []byte) []byte { return appendStr(b, m.Message) }

func (m *CreatePartitions) appendPayload(b []byte) []byte {
	return appendU32(appendStr(b, m.Name), m.Total)
}

func oneIf(v bool) byte {
	if v {
		return 1
	}
	return 0
}
