package kafka

import (
	"github.com/rs/zerolog"
)

// FrontEnd serves Kafka's protocol on every connection handed to it. It is
// shared by all sessions: its fields are set before the first connection and
// never change.
//
// Handlers reach it through their session: s.log, s.coordinator, s.config.
type FrontEnd struct {
	log zerolog.Logger
}
