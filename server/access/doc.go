// Package access answers two questions for every front end: who are you, and
// may you.
//
//	who   password   PLAIN of Kafka, AUTH of MoonMQ     Credential.Verify
//	      SCRAM      RFC 5802, 7677, with binding       Exchange
//	      EXTERNAL   a verified client certificate      MatchCertificate
//	      Lockout    addresses that fail too often are banned for a while
//	may   Authorizer a question asked of an immutable snapshot of the ACLs
//
// Passwords are never stored: a Credential holds SCRAM's two keys, from which a
// password can be checked but not learned. An unknown user costs the same time
// as a known one and gets a challenge that cannot be told from a real one.
//
// Nothing here starts a goroutine. Directory swaps whole snapshots atomically,
// so a question never sees half a change; Lockout and Verifier have a lock or a
// semaphore of their own; the rest is immutable. Deriving a key takes a
// noticeable fraction of a second of CPU on purpose: callers run it on a
// goroutine of the connection it belongs to, at most MaxDerivations at once.
package access
