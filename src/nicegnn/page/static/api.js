// Questions to the server; every error has a message.

const query = (words) => new URLSearchParams(Object.entries(words).filter(([, value]) => value !== "" && value != null));

/** Returns the address of an answer or a download. */
export const address = (path, words) => `api/${path}?${query(words)}`;

/** Returns the JSON of an answer; raises an Error with the server's words. */
export async function ask(path, words = {}, signal = undefined) {
  return (await checked(fetch(address(path, words), { signal }))).json();
}

/** Returns an answer that is a text. */
export const askText = async (path, words) => (await checked(fetch(address(path, words)))).text();

async function checked(waiting) {
  let answer;
  try {
    answer = await waiting;
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Error("The server does not answer. Is `nicegnn serve` still running?");
  }
  if (answer.ok) return answer;
  const said = await answer.json().catch(() => null);
  throw new Error(said?.error?.message ?? `The server answered with code ${answer.status}.`);
}

/** Lets the browser save words or a blob as a file. */
export function save(name, content, type) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([content], { type }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

/** Returns lines of cells as a CSV file, in which a spreadsheet finds no formula. */
export function csvOf(lines) {
  const plain = (value) => (/^[=+\-@\t\r]/.test(value) && Number.isNaN(Number(value)) ? `'${value}` : value);
  const cell = (value) => (/[",\n\r]/.test(plain(value)) ? `"${plain(value).replaceAll('"', '""')}"` : plain(value));
  return lines.map((line) => line.map((value) => cell(String(value ?? ""))).join(",") + "\r\n").join("");
}

/** Returns a probability in per cent, never 0 or 100. */
export const percent = (share) =>
  share > 0.995 ? "> 99 %" : share < 0.005 ? "< 1 %" : `${Math.round(100 * share)} %`;
