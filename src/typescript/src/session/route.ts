/** The choice of server: one of the configured or learnt endpoints, or the master that they name. */

/** Maximum number of redirects in a row. */
const MAX_REDIRECTS = 5;

/** Maximum number of learnt peers; further ones are ignored. */
const MAX_LEARNT_PEERS = 64;

/** Stays with a master that answers, and goes round the endpoints while none does. */
export class Route {
  /** The configured endpoints, at least one, followed by the learnt ones. */
  endpoints: string[];
  target: string;
  private readonly configured: number;
  /** Index of the endpoint that was tried last. */
  private tried: number;
  /** Redirects since a master last answered. */
  private redirects = 0;

  /** `first` in [0, 1) selects the first endpoint. It is random, so that clients do not all begin with the same server. */
  constructor(endpoints: readonly string[], first: number) {
    this.tried = Math.floor(first * endpoints.length);
    const target = endpoints[this.tried];
    if (target === undefined) throw new RangeError("a session needs at least one endpoint");
    this.endpoints = [...endpoints];
    this.configured = endpoints.length;
    this.target = target;
  }

  /** Replaces the learnt peers. */
  learn(peers: Iterable<string>): void {
    this.endpoints.length = this.configured;
    for (const peer of peers) {
      if (this.endpoints.length >= this.configured + MAX_LEARNT_PEERS) return;
      if (!this.endpoints.includes(peer)) this.endpoints.push(peer);
    }
  }

  succeeded(): void {
    this.redirects = 0;
  }

  /**
   * The target names `master`. Returns whether to go there at once. If not, this counts as a failure: servers that name
   * themselves or each other are asked again only after a pause.
   */
  redirected(master: string): boolean {
    this.redirects += 1;
    if (this.target === master || this.redirects > MAX_REDIRECTS) return false;
    this.target = master;
    return true;
  }

  /** Moves on to the next endpoint. */
  failed(): void {
    this.redirects = 0;
    this.tried = (this.tried + 1) % this.endpoints.length;
    this.target = this.endpoints[this.tried] ?? this.target;
  }
}
