/** Errors of the client. An unreachable server is not among them: the client retries, and `health()` shows it. */

import { quoted } from "./quoted.js";

/** Base class of all errors of this package. */
export class LeasewayError extends Error {
  override name = "LeasewayError";
}

/** The client could not be created. Nothing was started. */
export class BuildError extends LeasewayError {
  override name = "BuildError";
}

/** A resource could not be opened, or its wants are invalid. Resources that are open stay open. */
export class OpenError extends LeasewayError {
  override name = "OpenError";
}

/** The client or the handle was closed; nothing was taken. */
export class ClosedError extends LeasewayError {
  override name = "ClosedError";

  constructor(message = "the client or the handle was closed") {
    super(message);
  }
}

/** The timeout expired; nothing was taken. */
export class TimeoutError extends LeasewayError {
  override name = "TimeoutError";
}

/** Some resources have no lease yet. The client keeps trying. */
export class NotReadyError extends LeasewayError {
  override name = "NotReadyError";

  constructor(
    /** The resources without a lease. */
    readonly resources: readonly string[],
    /** The error of the last failed request, or that no request has failed. */
    readonly why: string,
  ) {
    super(`no lease yet for ${named(resources)}: ${why}`);
  }
}

/** A charge exceeded the maximum debt. The part up to the maximum was charged. */
export class DebtExceededError extends LeasewayError {
  override name = "DebtExceededError";

  constructor(
    /** Permits that were not charged. */
    readonly uncharged: number,
    readonly maxDebt: number,
    /** The name of the resource, if several limits were charged. */
    readonly resource?: string | undefined,
  ) {
    super(
      `${resource === undefined ? "" : `\`${resource}\`: `}maximum debt of ${maxDebt} exceeded: ${uncharged} permits were not charged`,
    );
  }
}

/** Maximum number of resources named in a message. */
export const MAX_NAMED = 5;

/** The first of these resources, and the number of the others. */
export function named(resources: readonly string[]): string {
  const names = resources.slice(0, MAX_NAMED).map((id) => `\`${quoted(id)}\``);
  const more = resources.length - names.length;
  return more > 0 ? `${names.join(", ")} and ${more} more` : names.join(", ");
}
