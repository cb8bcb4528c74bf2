package compat

// A difference is where our answer is not Apache Kafka's, and why. step and field
// are regular expressions for the step's name and the field's path. With
// refused, only fields beside an error code are meant.
type difference struct {
	step, field string
	refused     bool
	why         string
}

// Each stands in docs/compatibility.md too.
var differences = []difference{
	{step: `CreateTopics|DescribeConfigs`, field: `\[min\.insync\.replicas\]\.(Source|ConfigSynonyms)`,
		why: "eligible leader replicas, on in Kafka, turn this default into a dynamic one; we have no replicas"},
	{step: `to an illegal name: Produce`, field: `ErrorCode$`,
		why: "INVALID_TOPIC_EXCEPTION instead of UNKNOWN_TOPIC_OR_PARTITION, which a client retries until it times out"},
	{step: `another magic: Produce`, field: `ErrorCode$`,
		why: "INVALID_RECORD instead of CORRUPT_MESSAGE, which a client retries: the same bytes would come again"},
	{step: `a control batch: Produce`, field: `ErrorCode$`,
		why: "we look at the batch before the transactional id it should have had"},
	{step: `: Produce `, field: `\.LogStartOffset$`, refused: true,
		why: "Kafka tells the start of the log beside some errors; no client reads it there"},
	{step: `the same again: Produce`, field: `\.LogAppendTime$`,
		why: "Kafka answers a duplicate as if the topic stamped records itself; we say -1, as for the original"},
	{step: `: Fetch `, field: `\.AbortedTransactions$`, refused: true,
		why: "null instead of an empty list"},
	{step: `: Fetch `, field: `\.(HighWatermark|LastStableOffset|LogStartOffset)$`, refused: true,
		why: "we tell the bounds of the log beside OFFSET_OUT_OF_RANGE and leader epoch errors; Kafka says -1"},
	{step: `: ListOffsets `, field: `ErrorCode$`, refused: true,
		why: "two things are wrong, an unknown partition and a timestamp unknown to the version: we name the first, Kafka the second"},
	{step: `settings of the node`, field: `\[num\.partitions\]\.ReadOnly$`,
		why: "it can be changed while the broker runs"},
	{step: `an operation nobody knows: IncrementalAlterConfigs`, field: `ErrorCode$`,
		why: "INVALID_REQUEST instead of UNKNOWN_SERVER_ERROR"},
}
