package model

// Isolation says how far a reader may see.
type Isolation int8

const (
	ReadUncommitted Isolation = 0 // up to the high watermark
	ReadCommitted   Isolation = 1 // up to the last stable offset
)
