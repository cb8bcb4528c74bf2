// Package kafka is the codec of Kafka's protocol: bytes to kmsg requests, kmsg
// responses to bytes. It has no sockets, no state and no locks; any goroutine
// may call anything.
//
//	request  ┌──────────┬────────┬────────────┬───────────────┬──────────────────┬─────────┬──────┐
//	         │ length 4 │ key 2  │ version 2  │ correlation 4 │ client id string │ tags    │ body │
//	         └──────────┴────────┴────────────┴───────────────┴──────────────────┴─────────┴──────┘
//	                                                                              header v2
//
//	response ┌──────────┬───────────────┬───────────┬──────┐
//	         │ length 4 │ correlation 4 │ tags      │ body │
//	         └──────────┴───────────────┴───────────┴──────┘
//	                                      header v1
//
// Integers are big endian. From the version an API became flexible (KIP-482),
// strings, bytes and arrays have a varint length plus one, and every structure
// ends with a section of tagged fields; its request header is v2, its response
// header v1. Two exceptions: the client id keeps its int16 length, since a
// client sends it before it knows the broker, and the header of an ApiVersions
// response is always v0.
//
// Nothing a client sends makes this package panic or allocate more than a small
// multiple of the frame: lengths and counts are checked against the bytes that
// are there, arrays and tag sections against MaxArray and MaxTags (shape.go).
// Byte fields of a decoded request (record batches among them) alias the frame;
// strings are copies.
//
// The fetch response has an encoder of its own (fetch_response.go), because
// kmsg's copies the records: ours writes everything around them and says where
// they belong, so that they can go from file to socket.
package kafka
