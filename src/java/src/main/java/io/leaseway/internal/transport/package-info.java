/** Connects a session to servers: connections, messages and hints. */
package io.leaseway.internal.transport;
