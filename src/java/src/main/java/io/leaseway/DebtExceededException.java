package io.leaseway;

/** A charge exceeded the maximum debt. The part up to the maximum was charged. */
public final class DebtExceededException extends LeasewayException {
    private static final long serialVersionUID = 1;

    private final long uncharged;
    private final long maxDebt;

    DebtExceededException(long uncharged, long maxDebt) {
        super("maximum debt of " + maxDebt + " exceeded: " + uncharged + " permits were not charged");
        this.uncharged = uncharged;
        this.maxDebt = maxDebt;
    }

    /** Returns the permits that were not charged. */
    public long uncharged() {
        return uncharged;
    }

    /** Returns the maximum debt in permits. */
    public long maxDebt() {
        return maxDebt;
    }
}
