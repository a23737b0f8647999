import * as fs from "fs";

interface Shape { area(): number; }
enum Kind { Round = 1, Square }
type Pair<K, V = string> = readonly [K, V?];

abstract class Named<T> implements Shape {
  private static count = 0;
  readonly #secret = 1;
  constructor(protected readonly name: T, public kind: Kind = Kind.Round) { Named.count++; }
  abstract area(): number;
  get shown(): string { return `${this.name} ${this.#secret}`; }
}

class Circle extends Named<string> {
  constructor(private radius: number) { super("circle"); }
  area(): number { return Math.PI * this.radius ** 2; }
}

async function* lines(text: string): AsyncGenerator<string> { for (const line of text.split("\n")) yield line; }

export async function main(...words: string[]): Promise<void> {
  const counts = new Map<string, number>();
  for (const word of words) counts.set(word, (counts.get(word) ?? 0) + 1);
  const [first, ...rest] = [...counts.entries()].sort(([, a], [, b]) => b - a);
  const { x = 1, ...others } = { x: 2, y: 3 } as { x?: number; y: number };
  label: for await (const line of lines("a\nb")) { if (line === "b") break label; }
  try { JSON.parse("{"); } catch { console.log(first?.[0], rest.length, x, others, new Circle(1).shown); }
  const pick = <T,>(items: T[], test: (item: T) => boolean): T | undefined => items.find(test);
  switch (pick([1, 2], (n) => n > 1)!) { case 2: console.log(fs.existsSync("/") ? "yes" : "no"); }
}
void main("a", "b", "a");
