package io.leaseway;

/** A charge exceeded the maximum debt. The part up to the maximum was charged. */
public final class DebtExceededException extends LeasewayException {
    private static final long serialVersionUID = 1;

    private final long uncharged;
    private final long maxDebt;

    DebtExceededException(long uncharged, long maxDebt) {
        this("", uncharged, maxDebt);
    }

    private DebtExceededException(String where, long uncharged, long maxDebt) {
        super(where + "maximum debt of " + maxDebt + " exceeded: " + uncharged + " permits were not charged");
        this.uncharged = uncharged;
        this.maxDebt = maxDebt;
    }

    /** Returns the exception with the name of the resource, for several limits. */
    DebtExceededException at(String resource) {
        return new DebtExceededException("`" + resource + "`: ", uncharged, maxDebt);
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
