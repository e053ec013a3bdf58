/**
 * Wraps a function of the user. An error that it throws becomes an uncaught exception of the process, as with an
 * `EventTarget`, instead of stopping the client in the middle of a step.
 */
export function guarded<A extends unknown[]>(callback: (...args: A) => void): (...args: A) => void {
  return (...args) => {
    try {
      callback(...args);
    } catch (error) {
      process.nextTick(() => {
        throw error;
      });
    }
  };
}
