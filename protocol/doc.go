// Package protocol holds the two codecs of the broker: kafka and moonmq turn
// bytes into messages and back. They have no sockets, no state and no locks and
// import nothing else of ours; what a message means is decided elsewhere.
package protocol
