package coordinator

import (
	"context"
	"fmt"
	"sync"

	"github.com/perigeemq/perigee/coordinator/machine"
	"github.com/perigeemq/perigee/storage/model"
)

// producerIDBlock is how many ids the catalog is asked for at a time; Kafka's
// number. What a crash leaves of a block is never given out.
const producerIDBlock = 1000

// producerIDs gives out producer ids from blocks that are durably taken out of
// circulation, so that an id can be used at once and by nobody else, in any
// life of the broker. The next block is fetched when half of one is gone, and
// is durable long before it is needed.
type producerIDs struct {
	// take asks the catalog for a block.
	take func(count int64) machine.Future[model.ProducerID]

	mu struct {
		sync.Mutex
		next, end model.ProducerID
		coming    *machine.Future[model.ProducerID] // the block after this one
	}
}

// get returns an id. It waits for the disk only if a whole block was used up
// within the time of one sync. Errors: the catalog's.
func (p *producerIDs) get(ctx context.Context) (model.ProducerID, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.next == p.mu.end {
		if err := p.turnLocked(ctx); err != nil {
			return model.NoProducerID, fmt.Errorf("take a block of producer ids: %w", err)
		}
	}
	id := p.mu.next
	p.mu.next++
	if p.mu.coming == nil && p.mu.end-p.mu.next < producerIDBlock/2 {
		p.orderLocked()
	}
	return id, nil
}

func (p *producerIDs) orderLocked() {
	block := p.take(producerIDBlock)
	p.mu.coming = &block
}

// turnLocked goes on with the block that was ordered. One that was refused is
// ordered anew by the next call.
func (p *producerIDs) turnLocked(ctx context.Context) error {
	if p.mu.coming == nil {
		p.orderLocked()
	}
	first, err := p.mu.coming.Wait(ctx)
	p.mu.coming = nil
	if err != nil {
		return err
	}
	p.mu.next, p.mu.end = first, first+producerIDBlock
	return nil
}
