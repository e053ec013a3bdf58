// Builds the package twice, for `import` and for `require`, with types for both.
import { execFileSync } from "node:child_process";
import { copyFileSync, rmSync, writeFileSync } from "node:fs";

const tsc = (...args) =>
  execFileSync(process.execPath, ["node_modules/typescript/bin/tsc", ...args], { stdio: "inherit" });

// npm packs it.
copyFileSync("../../LICENSE", "LICENSE");
rmSync("dist", { recursive: true, force: true });
tsc("-p", "tsconfig.json");
tsc("-p", "tsconfig.json", "--module", "commonjs", "--outDir", "dist/cjs");
writeFileSync("dist/esm/package.json", '{ "type": "module" }\n');
writeFileSync("dist/cjs/package.json", '{ "type": "commonjs" }\n');
