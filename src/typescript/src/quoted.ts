/** The maximum length of a quoted text. */
const MAX_QUOTED = 500;

/** A text that contains what a server has sent, for logs and errors: on one line, and cut if it is long. */
export function quoted(text: string): string {
  const cut = text.length > MAX_QUOTED ? `${text.slice(0, MAX_QUOTED)}…` : text;
  const escaped = (unseen: string) => `\\u{${unseen.codePointAt(0)?.toString(16)}}`;
  return cut.replace(/[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}]/gu, escaped);
}
