//! The graph of uses between the files of a crate, from paths and `use`. Re-exports are followed to the definition of
//! the item. Code for tests and method calls, which name no file, are ignored.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    fs,
    path::{Path, PathBuf},
};

use syn::{
    Item, UseTree, Visibility,
    visit::{self, Visit},
};

/// For each file, the files that it uses, with the used names.
pub(crate) type Graph = BTreeMap<PathBuf, BTreeMap<PathBuf, BTreeSet<String>>>;

/// The graph of the crate with this root, `lib.rs` or `main.rs`.
pub(crate) fn graph(root: &Path) -> Graph {
    let mut source = Crate::default();
    source.load(root, root.parent().unwrap(), Vec::new());
    source.graph()
}

#[derive(Default)]
struct Crate {
    modules: Vec<Module>,
    by_path: HashMap<Vec<String>, usize>,
}

#[derive(Default)]
struct Module {
    file: PathBuf,
    path: Vec<String>,
    items: HashSet<String>,
    uses: Vec<Import>,
    globs: Vec<Vec<String>>,
    /// Paths outside of `use`, and all names in them. A name that is re-exported counts as used if it is among them.
    paths: Vec<Vec<String>>,
    names: HashSet<String>,
}

struct Import {
    is_reexport: bool,
    name: String,
    target: Vec<String>,
}

/// The definition that a path leads to.
enum Target {
    Module(usize),
    Item { module: usize, name: String },
}

/// Longer chains of re-exports are cycles.
const MAX_REEXPORTS: usize = 16;

impl Crate {
    fn load(&mut self, file: &Path, folder: &Path, path: Vec<String>) {
        let text = fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        let syntax = syn::parse_file(&text).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        self.add(&syntax.items, file, folder, path);
    }

    fn add(&mut self, items: &[Item], file: &Path, folder: &Path, path: Vec<String>) {
        let mut module = Module { file: file.to_owned(), path: path.clone(), ..Module::default() };
        for item in items.iter().filter(|item| !is_for_tests(item)) {
            if let Item::Mod(inner) = item {
                let name = inner.ident.to_string();
                let (path, folder) = ([&path[..], std::slice::from_ref(&name)].concat(), folder.join(&name));
                match &inner.content {
                    Some((_, items)) => self.add(items, file, &folder, path),
                    None => {
                        let beside = folder.with_extension("rs");
                        let file = if beside.exists() { beside } else { folder.join("mod.rs") };
                        self.load(&file, &folder, path);
                    }
                }
                continue;
            }
            module.items.extend(name_of(item));
            if let Item::Use(item) = item {
                let is_reexport = !matches!(item.vis, Visibility::Inherited);
                module.import(&item.tree, &mut Vec::new(), is_reexport);
            } else {
                Names(&mut module).visit_item(item);
            }
        }
        self.by_path.insert(path, self.modules.len());
        self.modules.push(module);
    }

    fn graph(&self) -> Graph {
        let mut graph = Graph::new();
        for (index, module) in self.modules.iter().enumerate() {
            graph.entry(module.file.clone()).or_default();
            let imports =
                module.uses.iter().filter(|import| !import.is_reexport || module.names.contains(&import.name));
            let named = imports.map(|import| &import.target).chain(&module.paths);
            for path in named {
                if let Some(Target::Item { module: owner, name }) = self.resolve(index, path, 0) {
                    let used = &self.modules[owner].file;
                    if *used != module.file {
                        let uses = graph.entry(module.file.clone()).or_default();
                        uses.entry(used.clone()).or_default().insert(name);
                    }
                }
            }
        }
        graph
    }

    fn resolve(&self, from: usize, path: &[String], depth: usize) -> Option<Target> {
        let (first, rest) = path.split_first()?;
        let start = match first.as_str() {
            "crate" => Target::Module(self.by_path[&Vec::new()]),
            "self" => Target::Module(from),
            "super" => Target::Module(self.parent(from)?),
            name => self.lookup(from, name, depth)?,
        };
        let mut at = match start {
            Target::Module(module) => module,
            item @ Target::Item { .. } => return Some(item),
        };
        for segment in rest {
            if segment == "super" {
                at = self.parent(at)?;
                continue;
            }
            match self.lookup(at, segment, depth) {
                Some(Target::Module(module)) => at = module,
                Some(item) => return Some(item),
                // Not declared in the source: generated by a macro or provided by a trait.
                None => return Some(Target::Item { module: at, name: segment.clone() }),
            }
        }
        Some(Target::Module(at))
    }

    fn lookup(&self, module: usize, name: &str, depth: usize) -> Option<Target> {
        let own = &self.modules[module];
        if let Some(child) = self.by_path.get(&[&own.path[..], &[name.to_owned()]].concat()) {
            return Some(Target::Module(*child));
        }
        if own.items.contains(name) {
            return Some(Target::Item { module, name: name.to_owned() });
        }
        if depth > MAX_REEXPORTS {
            return None;
        }
        if let Some(import) = own.uses.iter().find(|import| import.name == name) {
            // `use foo::foo` names another crate, so it must not resolve to itself.
            return (import.target.first().map(String::as_str) != Some(name))
                .then(|| self.resolve(module, &import.target, depth + 1))
                .flatten();
        }
        own.globs.iter().find_map(|glob| match self.resolve(module, glob, depth + 1)? {
            Target::Module(other) if other != module => self.lookup(other, name, depth + 1),
            _ => None,
        })
    }

    fn parent(&self, module: usize) -> Option<usize> {
        let path = &self.modules[module].path;
        self.by_path.get(&path[..path.len().checked_sub(1)?]).copied()
    }
}

impl Module {
    fn import(&mut self, tree: &UseTree, before: &mut Vec<String>, is_reexport: bool) {
        let mut add = |name: String, last: String, before: &[String]| {
            let target = if last == "self" { before.to_vec() } else { [before, &[last]].concat() };
            let name = if name == "self" { target.last().cloned().unwrap_or_default() } else { name };
            self.uses.push(Import { is_reexport, name, target });
        };
        match tree {
            UseTree::Path(path) => {
                before.push(path.ident.to_string());
                self.import(&path.tree, before, is_reexport);
                before.pop();
            }
            UseTree::Name(name) => add(name.ident.to_string(), name.ident.to_string(), before),
            UseTree::Rename(name) => add(name.rename.to_string(), name.ident.to_string(), before),
            UseTree::Glob(_) => self.globs.push(before.clone()),
            UseTree::Group(group) => group.items.iter().for_each(|tree| self.import(tree, before, is_reexport)),
        }
    }

    fn name_path(&mut self, path: Vec<String>) {
        self.names.extend(path.iter().cloned());
        self.paths.push(path);
    }
}

/// Collects paths and names of an item.
struct Names<'m>(&'m mut Module);

impl Visit<'_> for Names<'_> {
    fn visit_path(&mut self, path: &syn::Path) {
        if path.leading_colon.is_none() {
            self.0.name_path(path.segments.iter().map(|segment| segment.ident.to_string()).collect());
        }
        visit::visit_path(self, path);
    }

    fn visit_item(&mut self, item: &Item) {
        if is_for_tests(item) {
            return;
        }
        if let Item::Use(item) = item {
            // A `use` inside a function.
            self.0.import(&item.tree, &mut Vec::new(), false);
        } else {
            visit::visit_item(self, item);
        }
    }

    fn visit_visibility(&mut self, _: &Visibility) {}

    /// Finds paths in the arguments of macros by their shape, because these are tokens.
    fn visit_macro(&mut self, call: &syn::Macro) {
        let text = call.tokens.to_string().replace(" :: ", "::");
        let is_of_path = |char: char| char.is_alphanumeric() || char == '_' || char == ':';
        for word in text.split(|char| !is_of_path(char)).map(|word| word.trim_matches(':')) {
            if word.starts_with(|char: char| char.is_alphabetic() || char == '_') {
                self.0.name_path(word.split("::").map(str::to_owned).collect());
            }
        }
    }
}

fn name_of(item: &Item) -> Option<String> {
    let name = match item {
        Item::Const(item) => &item.ident,
        Item::Enum(item) => &item.ident,
        Item::Fn(item) => &item.sig.ident,
        Item::Macro(item) => item.ident.as_ref()?,
        Item::Static(item) => &item.ident,
        Item::Struct(item) => &item.ident,
        Item::Trait(item) => &item.ident,
        Item::TraitAlias(item) => &item.ident,
        Item::Type(item) => &item.ident,
        Item::Union(item) => &item.ident,
        _ => return None,
    };
    Some(name.to_string())
}

/// `#[cfg(test)]`, `#[test]`.
fn is_for_tests(item: &Item) -> bool {
    let attributes = match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => return false,
    };
    attributes.iter().any(|attribute| {
        let is_cfg_test = attribute.path().is_ident("cfg")
            && attribute.parse_args::<syn::Path>().is_ok_and(|condition| condition.is_ident("test"));
        is_cfg_test || attribute.path().is_ident("test")
    })
}
