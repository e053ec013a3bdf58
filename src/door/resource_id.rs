//! The resource that a descriptor or a bucket means: `domain/key=value,key=value`.
