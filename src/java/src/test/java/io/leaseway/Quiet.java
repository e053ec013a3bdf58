package io.leaseway;

import java.util.ResourceBundle;

/** A logger that writes nothing. */
enum Quiet implements System.Logger {
    LOGGER;

    @Override
    public String getName() {
        return "quiet";
    }

    @Override
    public boolean isLoggable(Level level) {
        return false;
    }

    @Override
    public void log(Level level, ResourceBundle bundle, String message, Throwable thrown) {}

    @Override
    public void log(Level level, ResourceBundle bundle, String format, Object... params) {}
}
