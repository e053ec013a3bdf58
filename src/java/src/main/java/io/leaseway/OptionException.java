package io.leaseway;

/** A setting of a client or resource is invalid. The message says what is expected. */
public final class OptionException extends LeasewayException {
    private static final long serialVersionUID = 1;

    private final String setting;

    /**
     * Creates the exception.
     *
     * @param setting the name of the setting
     * @param why what is wrong
     */
    public OptionException(String setting, String why) {
        super("invalid " + setting + ": " + why);
        this.setting = setting;
    }

    /** Returns the name of the setting, such as "wants". */
    public String setting() {
        return setting;
    }
}
