package io.leaseway.internal.limiter;

import java.math.BigInteger;
import java.nio.ByteBuffer;

/** An unsigned integer. Sums and products saturate. */
record UInt128(long hi, long lo) {
    static final UInt128 ZERO = new UInt128(0, 0);
    static final UInt128 MAX = new UInt128(-1, -1);

    private static final double TWO_63 = 0x1p63;
    private static final double TWO_64 = 0x1p64;
    private static final BigInteger MAX_LONG = BigInteger.valueOf(Long.MAX_VALUE);

    boolean isZero() {
        return (hi | lo) == 0;
    }

    boolean isLess(UInt128 other) {
        int order = Long.compareUnsigned(hi, other.hi);
        return order < 0 || order == 0 && Long.compareUnsigned(lo, other.lo) < 0;
    }

    UInt128 add(UInt128 other) {
        long low = lo + other.lo;
        long carry = Long.compareUnsigned(low, lo) < 0 ? 1 : 0;
        long high = hi + other.hi;
        boolean overflows = Long.compareUnsigned(high, hi) < 0;
        long sum = high + carry;
        return overflows || carry == 1 && sum == 0 ? MAX : new UInt128(sum, low);
    }

    /** Returns the difference, or 0 if other is larger. */
    UInt128 subtract(UInt128 other) {
        if (isLess(other)) {
            return ZERO;
        }
        long borrow = Long.compareUnsigned(lo, other.lo) < 0 ? 1 : 0;
        return new UInt128(hi - other.hi - borrow, lo - other.lo);
    }

    /** Multiplies by a number that is not negative. */
    UInt128 multiply(long n) {
        long carry = multiplyHighUnsigned(lo, n);
        long high = hi * n;
        if (hi != 0 && multiplyHighUnsigned(hi, n) != 0) {
            return MAX;
        }
        long sum = high + carry;
        return Long.compareUnsigned(sum, high) < 0 ? MAX : new UInt128(sum, lo * n);
    }

    private static long multiplyHighUnsigned(long a, long b) {
        return Math.multiplyHigh(a, b) + (a >> 63 & b) + (b >> 63 & a);
    }

    /** Returns the quotient rounded down, at most Long.MAX_VALUE. divisor must not be 0. */
    long divide(UInt128 divisor) {
        if (isLess(divisor)) {
            return 0;
        }
        if (hi == 0) {
            // The divisor is not larger, so it fits into 64 bits, too.
            long quotient = Long.divideUnsigned(lo, divisor.lo);
            return quotient < 0 ? Long.MAX_VALUE : quotient;
        }
        return toBigInteger().divide(divisor.toBigInteger()).min(MAX_LONG).longValue();
    }

    /** Returns the quotient rounded up, at most Long.MAX_VALUE. divisor must not be 0. */
    long divideUp(UInt128 divisor) {
        long quotient = divide(divisor);
        return quotient == Long.MAX_VALUE || divisor.multiply(quotient).equals(this) ? quotient : quotient + 1;
    }

    double toDouble() {
        return unsignedToDouble(hi) * TWO_64 + unsignedToDouble(lo);
    }

    private static double unsignedToDouble(long n) {
        return n >= 0 ? n : (n & Long.MAX_VALUE) + TWO_63;
    }

    BigInteger toBigInteger() {
        return new BigInteger(1, ByteBuffer.allocate(16).putLong(hi).putLong(lo).array());
    }

    /** Truncates a number from 0 to 2^127. */
    static UInt128 of(double number) {
        if (number < TWO_63) {
            return new UInt128(0, (long) number);
        }
        long high = (long) (number / TWO_64);
        // Exact, because a double has 53 significant bits.
        double low = number - high * TWO_64;
        return new UInt128(high, low < TWO_63 ? (long) low : (long) (low - TWO_63) | Long.MIN_VALUE);
    }

    static UInt128 min(UInt128 a, UInt128 b) {
        return b.isLess(a) ? b : a;
    }

    static UInt128 max(UInt128 a, UInt128 b) {
        return a.isLess(b) ? b : a;
    }
}
