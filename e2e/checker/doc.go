// Package checker judges a history of transactions: what clients asked, what
// they were told, what readers saw, and what the log held in the end. It knows
// nothing about the broker; it is handed facts and returns anomalies.
//
//	workers ──► History ──► Check ──► []Anomaly, each named after an invariant
//
// The workload is list-append over partitions: every value is unique in the
// whole history and recorded with the offset it got, and a partition is a total
// order whose positions readers see. So no order has to be inferred: which
// write came first is told by offsets, who read what by values.
//
//	I1  no aborted read             I10 an offset keeps its value
//	I2  no lost committed write     I11 a fenced producer writes nothing
//	I3  no duplicate                I12 a decision stands
//	I4  all of a transaction, or none      I13 nothing hangs
//	I5  no hole in what a reader saw       I14 producer ids belong to one owner
//	I6  no cycle of reads                  I15 a reader moves forward and skips nothing
//	I7  offsets move with the output       I16 nobody reads what is not committed
//	I8  stable offset and high watermark never go back
//	I9  each response explains itself      I17 a dead letter is written once
//	                                       I18 "not written" means not written
//
// An operation whose outcome is Unknown (a timeout, a cut connection) may have
// happened or not; Refused is only said of answers that prove that it did not.
// Cycles with write-write edges are legal in Kafka, where a record takes its
// place before its transaction commits; Report counts them apart.
package checker
