//! What the linker of macOS has to be told of modules that an interpreter loads.

fn main() {
    pyo3_build_config::add_extension_module_link_args();
}
