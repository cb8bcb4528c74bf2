// Package storage is the log engine: one journal that makes records durable, many
// segments that make them readable.
package storage
