//! Sets the linker flags that extension modules need on macOS.

fn main() {
    pyo3_build_config::add_extension_module_link_args();
}
