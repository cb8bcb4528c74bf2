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

	mu struct { // never held over a wait
		sync.Mutex
		next, end model.ProducerID
		coming    *machine.Future[model.ProducerID] // the block after this one
	}
}

// prepare orders the first block, so that it is there when somebody asks.
func (p *producerIDs) prepare() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.orderLocked()
}

func (p *producerIDs) orderLocked() {
	if p.mu.coming == nil && p.mu.end-p.mu.next <= producerIDBlock/2 {
		ordered := p.take(producerIDBlock)
		p.mu.coming = &ordered
	}
}

// get returns an id. It waits for the disk only if a whole block was used up
// within the time of one sync. Errors: the catalog's, and ctx's.
func (p *producerIDs) get(ctx context.Context) (model.ProducerID, error) {
	for {
		id, block := p.next()
		if block == nil {
			return id, nil
		}
		first, err := block.Wait(ctx)
		if ctx.Err() == nil {
			p.arrived(block, first, err)
		}
		if err != nil {
			return model.NoProducerID, fmt.Errorf("take a block of producer ids: %w", err)
		}
	}
}

// next returns an id, or the block to wait for.
func (p *producerIDs) next() (id model.ProducerID, block *machine.Future[model.ProducerID]) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.orderLocked()
	if p.mu.next == p.mu.end {
		return model.NoProducerID, p.mu.coming
	}
	id = p.mu.next
	p.mu.next++
	return id, nil
}

// arrived goes on with a block that was waited for, unless another caller did.
// One that was refused is ordered anew by the next call.
func (p *producerIDs) arrived(block *machine.Future[model.ProducerID], first model.ProducerID, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.coming != block {
		return
	}
	p.mu.coming = nil
	if err == nil {
		p.mu.next, p.mu.end = first, first+producerIDBlock
	}
}
