package producer

import "github.com/perigeemq/perigee/storage/model"

// Aborted is one finished transaction that had records here and was rolled back:
// what a read_committed reader must hide.
type Aborted struct {
	ProducerID model.ProducerID
	First      model.Offset // of its first record
	Last       model.Offset // of its marker
}
