package moonmq

// DecodeReply decodes the payload of a server's frame; withHeaders says that
// the request asked for record headers. The two heartbeats, which travel both
// ways, are decoded too. The error is ErrUnknownOp or a *DecodeError.
func DecodeReply(op Op, payload []byte, withHeaders bool) (Message, error) {
	r := reader{b: payload}
	var m Message
	switch op {
	case OpHeartbeatReq, OpHeartbeatResp:
		return requestDecoders[op](&r), nil
	case OpRecord:
		record := decodeRecord(&r, withHeaders)
		m = &record
	case OpRecordBatch:
		m = decodeRecordBatch(&r, withHeaders)
	default:
		decode, ok := replyDecoders[op]
		if !ok {
			return nil, ErrUnknownOp
		}
		m = decode(&r)
	}
	if r.err != nil {
		return nil, r.err
	}
	return m, nil
}

var replyDecoders = map[Op]func(*reader) Message{
	OpWelcome: func(r *reader) Message {
		r.need(4, "welcome")
		return &Welcome{Version: r.u32()}
	},
	OpAuthOK: func(r *reader) Message {
		if len(r.b) == 0 {
			return &AuthOK{}
		}
		return &AuthOK{Message: r.str(MaxSASLMessage)}
	},
	OpProduceAck: func(r *reader) Message {
		ack := decodeAck(r)
		return &ack
	},
	OpTopicList: decodeTopicList,
	OpOK:        func(*reader) Message { return &OK{} },
	OpIdentifyAck: func(r *reader) Message {
		return &IdentifyAck{Name: r.str(MaxString), Version: r.str(MaxString)}
	},
	OpProducerID: func(r *reader) Message {
		r.need(10, "producer id")
		return &ProducerID{PID: r.u64(), Epoch: r.u16()}
	},
	OpGroupAssignment: func(r *reader) Message {
		assignment := decodeAssignment(r)
		return &assignment
	},
	OpNackAck: func(r *reader) Message {
		r.need(3, "nack ack")
		return &NackAck{DeadLettered: r.u8() != 0, Attempts: r.u16(), Topic: r.str(MaxTopicName)}
	},
	OpProduceBatchAck: decodeProduceBatchAck,
	OpOffsets:         decodeOffsets,
	OpTopicDescription: func(r *reader) Message {
		m := &TopicDescription{Name: r.str(MaxTopicName)}
		r.need(4, "topic description")
		m.Partitions = r.u32()
		m.Config = decodeConfig(r, r.count("topic description", "config entries", MaxConfigEntries))
		return m
	},
	OpGroupList:        decodeGroupList,
	OpGroupDescription: decodeGroupDescription,
	OpAuthChallenge:    func(r *reader) Message { return &AuthChallenge{Message: r.str(MaxSASLMessage)} },
	OpError: func(r *reader) Message {
		r.need(2, "error")
		return &Error{Code: Code(r.u16()), Message: r.str(MaxString)}
	},
}

func decodeAck(r *reader) ProduceAck {
	r.need(12, "produce ack")
	return ProduceAck{Partition: r.u32(), Offset: r.u64()}
}

func decodeRecord(r *reader, withHeaders bool) Record {
	m := Record{Topic: r.str(MaxTopicName), WithHeaders: withHeaders}
	r.need(20, "record")
	m.Partition, m.Offset, m.Timestamp = r.u32(), r.u64(), r.u64()
	m.Key, m.Value = r.bytes(MaxString), r.bytes(MaxString)
	if withHeaders {
		m.Headers = decodeHeaders(r)
	}
	return m
}

func decodeRecordBatch(r *reader, withHeaders bool) Message {
	m := &RecordBatch{WithHeaders: withHeaders}
	n := r.count("record batch", "records", MaxBatchRecords)
	m.Records = make([]Record, 0, r.room(n, 32))
	for range n {
		if r.err != nil {
			break
		}
		m.Records = append(m.Records, decodeRecord(r, withHeaders))
	}
	return m
}

func decodeTopicList(r *reader) Message {
	n := r.count("topic list", "topics", MaxString)
	m := &TopicList{Names: make([]string, 0, r.room(n, 4))}
	for range n {
		if r.err != nil {
			break
		}
		m.Names = append(m.Names, r.str(MaxTopicName))
	}
	return m
}

func decodeAssignment(r *reader) GroupAssignment {
	m := GroupAssignment{Member: r.str(MaxName)}
	n := r.count("group assignment", "topics", MaxJoinTopics)
	m.Topics = make([]TopicAssignment, 0, r.room(n, 8))
	for range n {
		if r.err != nil {
			break
		}
		t := TopicAssignment{Topic: r.str(MaxTopicName)}
		partitions := r.count("group assignment", "partitions", MaxPartitions)
		if !r.need(partitions*4, "group assignment") {
			break
		}
		t.Partitions = make([]uint32, partitions)
		for i := range t.Partitions {
			t.Partitions[i] = r.u32()
		}
		m.Topics = append(m.Topics, t)
	}
	return m
}

func decodeProduceBatchAck(r *reader) Message {
	n := r.count("produce batch ack", "acks", MaxBatchRecords)
	m := &ProduceBatchAck{Acks: make([]ProduceAck, 0, r.room(n, 12))}
	for range n {
		if r.err != nil {
			return m
		}
		m.Acks = append(m.Acks, decodeAck(r))
	}
	r.need(2, "produce batch ack")
	m.Code, m.Message = Code(r.u16()), r.str(MaxString)
	return m
}

func decodeOffsets(r *reader) Message {
	n := r.count("offsets", "partitions", MaxPartitions)
	m := &Offsets{Bounds: make([]PartitionOffsets, 0, r.room(n, 37))}
	for range n {
		if !r.need(37, "offsets") {
			return m
		}
		m.Bounds = append(m.Bounds, PartitionOffsets{
			Partition: r.u32(), Earliest: r.u64(), Latest: r.u64(),
			HighWatermark: r.u64(), LSO: r.u64(), Flags: OffsetsFlags(r.u8()),
		})
	}
	if r.err != nil || len(r.b) < 4 {
		return m
	}
	m.WithTimes = true
	n = r.count("offsets", "partitions", MaxPartitions)
	m.ForTimes = make([]TimeOffset, 0, r.room(n, 13))
	for range n {
		if !r.need(13, "offsets") {
			return m
		}
		m.ForTimes = append(m.ForTimes, TimeOffset{
			Partition: r.u32(), Offset: r.u64(), Found: r.u8() != 0,
		})
	}
	return m
}

func decodeGroupList(r *reader) Message {
	n := r.count("group list", "groups", MaxListedGroups)
	m := &GroupList{Groups: make([]ListedGroup, 0, r.room(n, 12))}
	for range n {
		if r.err != nil {
			break
		}
		g := ListedGroup{Group: r.str(MaxName), State: GroupState(r.str(MaxName))}
		r.need(4, "group list")
		g.Members = r.u32()
		m.Groups = append(m.Groups, g)
	}
	return m
}

func decodeGroupDescription(r *reader) Message {
	m := &GroupDescription{Group: r.str(MaxName), State: GroupState(r.str(MaxName))}
	n := r.count("group description", "members", MaxListedMembers)
	m.Members = make([]GroupAssignment, 0, r.room(n, 8))
	for range n {
		if r.err != nil {
			return m
		}
		m.Members = append(m.Members, decodeAssignment(r))
	}
	n = r.count("group description", "offsets", MaxListedOffsets)
	m.Offsets = make([]CommittedOffset, 0, r.room(n, 16))
	for range n {
		if r.err != nil {
			return m
		}
		o := CommittedOffset{Topic: r.str(MaxTopicName)}
		r.need(12, "group description")
		o.Partition, o.Offset = r.u32(), r.u64()
		m.Offsets = append(m.Offsets, o)
	}
	return m
}

func (m *Welcome) appendPayload(b []byte) []byte { return appendU32(b, m.Version) }

func (m *AuthOK) appendPayload(b []byte) []byte {
	if m.Message == "" {
		return b
	}
	return appendStr(b, m.Message)
}

func (m *ProduceAck) appendPayload(b []byte) []byte {
	return appendU64(appendU32(b, m.Partition), m.Offset)
}

func (m *Record) appendPayload(b []byte) []byte { return m.appendTo(b, m.WithHeaders) }

func (m *Record) appendTo(b []byte, withHeaders bool) []byte {
	b = appendU32(appendStr(b, m.Topic), m.Partition)
	b = appendU64(appendU64(b, m.Offset), m.Timestamp)
	b = appendStr(appendStr(b, m.Key), m.Value)
	if withHeaders {
		b = m.Headers.appendTo(b)
	}
	return b
}

// Size is how many bytes the record takes in a RecordBatch.
func (m *Record) Size(withHeaders bool) int {
	n := 4 + len(m.Topic) + 4 + 8 + 8 + 4 + len(m.Key) + 4 + len(m.Value)
	if withHeaders {
		n += 2
		for _, h := range m.Headers {
			n += 4 + len(h.Name) + 4 + len(h.Value)
		}
	}
	return n
}

func (m *RecordBatch) appendPayload(b []byte) []byte {
	b = appendU32(b, uint32(len(m.Records)))
	for i := range m.Records {
		b = m.Records[i].appendTo(b, m.WithHeaders)
	}
	return b
}

func (m *TopicList) appendPayload(b []byte) []byte {
	b = appendU32(b, uint32(len(m.Names)))
	for _, n := range m.Names {
		b = appendStr(b, n)
	}
	return b
}

func (*OK) appendPayload(b []byte) []byte { return b }

func (m *IdentifyAck) appendPayload(b []byte) []byte {
	return appendStr(appendStr(b, m.Name), m.Version)
}

func (m *ProducerID) appendPayload(b []byte) []byte {
	return appendU16(appendU64(b, m.PID), m.Epoch)
}

func (m *GroupAssignment) appendPayload(b []byte) []byte {
	b = appendU32(appendStr(b, m.Member), uint32(len(m.Topics)))
	for _, t := range m.Topics {
		b = appendU32(appendStr(b, t.Topic), uint32(len(t.Partitions)))
		for _, p := range t.Partitions {
			b = appendU32(b, p)
		}
	}
	return b
}

func (m *NackAck) appendPayload(b []byte) []byte {
	return appendStr(appendU16(append(b, oneIf(m.DeadLettered)), m.Attempts), m.Topic)
}

func (m *ProduceBatchAck) appendPayload(b []byte) []byte {
	b = appendU32(b, uint32(len(m.Acks)))
	for i := range m.Acks {
		b = m.Acks[i].appendPayload(b)
	}
	return appendStr(appendU16(b, uint16(m.Code)), m.Message)
}

func (m *Offsets) appendPayload(b []byte) []byte {
	b = appendU32(b, uint32(len(m.Bounds)))
	for _, p := range m.Bounds {
		b = appendU64(appendU64(appendU32(b, p.Partition), p.Earliest), p.Latest)
		b = append(appendU64(appendU64(b, p.HighWatermark), p.LSO), byte(p.Flags))
	}
	if !m.WithTimes {
		return b
	}
	b = appendU32(b, uint32(len(m.ForTimes)))
	for _, p := range m.ForTimes {
		b = append(appendU64(appendU32(b, p.Partition), p.Offset), oneIf(p.Found))
	}
	return b
}

func (m *TopicDescription) appendPayload(b []byte) []byte {
	return appendConfig(appendU32(appendStr(b, m.Name), m.Partitions), m.Config)
}

func (m *GroupList) appendPayload(b []byte) []byte {
	b = appendU32(b, uint32(len(m.Groups)))
	for _, g := range m.Groups {
		b = appendU32(appendStr(appendStr(b, g.Group), g.State), g.Members)
	}
	return b
}

func (m *GroupDescription) appendPayload(b []byte) []byte {
	b = appendU32(appendStr(appendStr(b, m.Group), m.State), uint32(len(m.Members)))
	for i := range m.Members {
		b = m.Members[i].appendPayload(b)
	}
	b = appendU32(b, uint32(len(m.Offsets)))
	for _, o := range m.Offsets {
		b = appendU64(appendU32(appendStr(b, o.Topic), o.Partition), o.Offset)
	}
	return b
}

func (m *AuthChallenge) appendPayload(b []byte) []byte { return appendStr(b, m.Message) }

func (m *Error) appendPayload(b []byte) []byte {
	return appendStr(appendU16(b, uint16(m.Code)), m.Message)
}
