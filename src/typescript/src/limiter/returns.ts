/**
 * How much credit returned permits restore.
 *
 * Returning permits must leave the bucket as if they had never been taken. That may restore less than their price:
 * without them the bucket might have been full meanwhile and overflowed. So the restored credit is bounded by the
 * smallest room that the bucket has had since the permits were taken.
 *
 * Reserved permits are tracked individually. When the room falls below their sum, a new era begins: older reservations
 * share the room there was, and later ones are not affected. Two eras are kept. A reservation of an earlier era restores
 * nothing, because the bucket was full twice since. Other permits are tracked as a sum, and returns apply to those taken
 * last. If room is short, reservations have priority.
 */
export class Returns {
  private era = 0;
  /** Reserved in the current era. */
  private fresh = 0;
  private agedEra = 0;
  /** Reserved in the era before, as far as there was room for it. */
  private aged = 0;
  /** Taken without a reservation. */
  private spent = 0;

  /** Records credit that was taken. */
  take(permits: number): void {
    this.spent += permits;
  }

  /** Turns credit that was just spent into a reservation. Returns its era. */
  promise(permits: number): number {
    const part = Math.min(permits, this.spent);
    this.spent -= part;
    this.fresh += part;
    return this.era;
  }

  /** Bounds the credit that can be restored by the room of the bucket. */
  cut(room: number): void {
    const promised = this.fresh + this.aged;
    this.spent = Math.min(this.spent, Math.max(room - promised, 0));
    if (promised <= room) return;
    if (this.fresh > 0) {
      this.aged = this.fresh;
      this.agedEra = this.era;
      this.fresh = 0;
      this.era += 1;
    }
    this.aged = Math.min(this.aged, room);
  }

  /** Ends a reservation. Returns how much of it can be restored. */
  end(permits: number, era: number): number {
    if (era === this.era) {
      const back = Math.min(permits, this.fresh);
      this.fresh -= back;
      return back;
    }
    if (era !== this.agedEra) return 0;
    const back = Math.min(permits, this.aged);
    this.aged -= back;
    return back;
  }

  /** Ends a reservation whose permits are used; they may still be returned like others. */
  claim(permits: number, era: number): void {
    this.spent += this.end(permits, era);
  }

  /** Returns credit that was taken without a reservation. Returns how much of it can be restored. */
  refund(permits: number): number {
    const back = Math.min(permits, this.spent);
    this.spent -= back;
    return back;
  }
}
