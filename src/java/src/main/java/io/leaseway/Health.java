package io.leaseway;

import java.util.List;

/**
 * The state of the connection to the servers.
 *
 * @param server the server that is asked at present: the master, as far as is known
 * @param endpoints the servers that are tried when that one does not answer: the configured ones and the peers that the
 *     master has named
 * @param failures the number of failed requests since the last answer
 * @param lastError the error of the last failed request; empty if none has failed
 */
public record Health(String server, List<String> endpoints, int failures, String lastError) {}
