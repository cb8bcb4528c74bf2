// Package model is the vocabulary the whole broker shares: identifiers and
// small value types that mean the same thing in the engine, the coordinators
// and the front ends. It has no behaviour beyond printing and comparing, takes
// no locks and imports nothing of ours.
//
// Different quantities have different types, so that an offset is never passed
// where an epoch is meant. Numbers have the width of Kafka's wire format.
package model
