package limiter

// returns tracks how much credit returned permits restore, in units.
//
// Returning permits must leave the bucket as if they had never been taken. That may restore less than their price:
// without them the bucket might have been full meanwhile and overflowed. Restoring the full price would then let more
// through than capacity and burst allow. So the restored credit is bounded by the smallest room that the bucket has had
// since the permits were taken.
//
// Promised permits are tracked individually. When the room falls below their sum, a new era begins: older promises share
// the room there was, and later promises are not affected. Two eras are kept. A promise of an earlier era restores
// nothing, because the bucket was full twice since. Other permits are tracked as a sum, and returns apply to those taken
// last. If room is short, promises have priority.
type returns struct {
	era uint64
	// fresh is promised in the current era.
	fresh   uint128
	agedEra uint64
	// aged is promised in the era before, as far as there was room for it.
	aged uint128
	// spent was taken without a promise.
	spent uint128
}

// take records credit that was taken.
func (r *returns) take(units uint128) { r.spent = r.spent.add(units) }

// promise reserves credit that was just spent for a waiter. It returns the era of the reservation.
func (r *returns) promise(units uint128) uint64 {
	part := min128(units, r.spent)
	r.spent = r.spent.sub(part)
	r.fresh = r.fresh.add(part)
	return r.era
}

// cut bounds the credit that can be restored by the room of the bucket.
func (r *returns) cut(room uint128) {
	promised := r.fresh.add(r.aged)
	r.spent = min128(r.spent, room.sub(promised))
	if !room.less(promised) {
		return
	}
	if !r.fresh.isZero() {
		r.aged, r.agedEra = r.fresh, r.era
		r.fresh = uint128{}
		r.era++
	}
	r.aged = min128(r.aged, room)
}

// end ends a promise. It returns how much of it can be restored.
func (r *returns) end(units uint128, era uint64) uint128 {
	var share *uint128
	switch era {
	case r.era:
		share = &r.fresh
	case r.agedEra:
		share = &r.aged
	default:
		return uint128{}
	}
	back := min128(units, *share)
	*share = share.sub(back)
	return back
}

// claim ends a promise whose permits are used; they may still be returned like others.
func (r *returns) claim(units uint128, era uint64) { r.spent = r.spent.add(r.end(units, era)) }

// refund returns credit that was taken without a promise. It returns how much of it can be restored.
func (r *returns) refund(units uint128) uint128 {
	back := min128(units, r.spent)
	r.spent = r.spent.sub(back)
	return back
}
