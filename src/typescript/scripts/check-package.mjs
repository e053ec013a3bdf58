// Packs the package, installs the tarball in an empty project, and loads it with `import` and with `require`.
import { execFileSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

const directory = mkdtempSync(join(tmpdir(), "leaseway-pack-"));
const run = (command, args, cwd = directory) =>
  execFileSync(command, args, { cwd, encoding: "utf8", stdio: ["ignore", "pipe", "inherit"] });
try {
  const [packed] = JSON.parse(
    run("npm", ["pack", "--json", "--ignore-scripts", "--pack-destination", directory], process.cwd()),
  );
  const paths = packed.files.map((file) => file.path);
  for (const path of ["LICENSE", "README.md", "CHANGELOG.md", "dist/esm/index.d.ts", "dist/cjs/index.d.ts"]) {
    if (!paths.includes(path)) {
      throw new Error(`${packed.filename} does not contain ${path}`);
    }
  }
  writeFileSync(join(directory, "package.json"), '{ "private": true }\n');
  run("npm", ["install", "--no-fund", "--no-audit", "--ignore-scripts", join(directory, packed.filename)]);
  const use = 'const client = new Client("127.0.0.1:1"); client.rate("r"); client.abandon(); console.log("loaded");';
  run("node", ["--input-type=module", "-e", `import { Client } from "leaseway"; ${use}`]);
  run("node", ["--input-type=commonjs", "-e", `const { Client } = require("leaseway"); ${use}`]);
  console.log(`${packed.filename}: ${packed.files.length} files, ${packed.size} bytes, loaded with import and require`);
} finally {
  rmSync(directory, { recursive: true, force: true });
}
