//! Memory of a GPU: plain allocations by the driver's own library, which is loaded when the program runs. A static build,
//! as that of the image, can load none and says so.

#[cfg(not(target_feature = "crt-static"))]
use std::ffi::CString;
use std::ffi::{c_int, c_uint, c_void};
use std::io;
use std::sync::OnceLock;

/// Where weights, pool and spikes are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Device {
    Cpu,
    Cuda,
    Hip,
}

impl Device {
    pub const NAMES: [(&'static str, Device); 3] = [("cpu", Device::Cpu), ("cuda", Device::Cuda), ("hip", Device::Hip)];

    pub fn named(word: &str) -> Option<Device> {
        Device::NAMES.iter().find(|(name, _)| *name == word).map(|(_, device)| *device)
    }

    pub fn name(self) -> &'static str {
        Device::NAMES.iter().find(|(_, device)| *device == self).map_or("", |(name, _)| name)
    }
}

type Alloc = unsafe extern "C" fn(*mut u64, usize) -> c_int;
type Free = unsafe extern "C" fn(u64) -> c_int;
type Fill = unsafe extern "C" fn(u64, c_uint, usize) -> c_int;
type Enter = unsafe extern "C" fn(*mut c_void) -> c_int;
type EnterNumber = unsafe extern "C" fn(c_int) -> c_int;

/// The functions of a driver's library. Pointers of both makers are 64 bits wide, so the signatures are the same.
pub struct Driver {
    name: &'static str,
    alloc: Alloc,
    free: Free,
    fill: Fill,
    bind: Bind,
}

/// What makes the first GPU the current thread's.
enum Bind {
    Cuda(Enter, usize),
    Hip(EnterNumber),
}

impl Driver {
    /// The driver of a device, loaded once.
    pub fn of(device: Device) -> io::Result<&'static Driver> {
        static CUDA: OnceLock<Result<Driver, String>> = OnceLock::new();
        static HIP: OnceLock<Result<Driver, String>> = OnceLock::new();
        let loaded = match device {
            Device::Cpu => return Err(io::Error::other("the CPU has no driver")),
            Device::Cuda => CUDA.get_or_init(Driver::cuda),
            Device::Hip => HIP.get_or_init(Driver::hip),
        };
        loaded.as_ref().map_err(|why| io::Error::other(why.clone()))
    }

    fn cuda() -> Result<Driver, String> {
        let library = Library::load("REFERENCE_CUDA_LIBRARY", "libcuda.so.1")?;
        // SAFETY: the signatures are those of cuda.h for these names.
        unsafe {
            let init: unsafe extern "C" fn(c_uint) -> c_int = library.symbol("cuInit")?;
            let get: unsafe extern "C" fn(*mut c_int, c_int) -> c_int = library.symbol("cuDeviceGet")?;
            let retain: unsafe extern "C" fn(*mut *mut c_void, c_int) -> c_int =
                library.symbol("cuDevicePrimaryCtxRetain")?;
            let (mut device, mut context) = (0, std::ptr::null_mut());
            told("cuInit", init(0))?;
            told("cuDeviceGet", get(&mut device, 0))?;
            told("cuDevicePrimaryCtxRetain", retain(&mut context, device))?;
            Ok(Driver {
                name: "cuda",
                alloc: library.symbol("cuMemAlloc_v2")?,
                free: library.symbol("cuMemFree_v2")?,
                fill: library.symbol("cuMemsetD8_v2")?,
                bind: Bind::Cuda(library.symbol("cuCtxSetCurrent")?, context as usize),
            })
        }
    }

    fn hip() -> Result<Driver, String> {
        let library = Library::load("REFERENCE_HIP_LIBRARY", "libamdhip64.so")?;
        // SAFETY: the signatures are those of hip_runtime_api.h for these names.
        unsafe {
            Ok(Driver {
                name: "hip",
                alloc: library.symbol("hipMalloc")?,
                free: library.symbol("hipFree")?,
                fill: library.symbol("hipMemset")?,
                bind: Bind::Hip(library.symbol("hipSetDevice")?),
            })
        }
    }

    fn enter(&self) -> Result<(), String> {
        // SAFETY: the context is the one that was retained and never released.
        let code = match self.bind {
            Bind::Cuda(enter, context) => unsafe { enter(context as *mut c_void) },
            Bind::Hip(enter) => unsafe { enter(0) },
        };
        told("binding the thread to the GPU", code)
    }

    /// Takes exactly so many bytes; the driver rounds them up to its own granularity.
    pub fn take(&self, bytes: usize) -> io::Result<u64> {
        let mut address = 0;
        let taken = self.enter().and_then(|()| {
            // SAFETY: the pointer is to a variable of ours.
            told("allocating", unsafe { (self.alloc)(&mut address, bytes) })
        });
        taken.map(|()| address).map_err(|why| io::Error::other(format!("{}: {why}", self.name)))
    }

    /// Writes to a part of what was taken.
    pub fn fill(&self, address: u64, bytes: usize) {
        // SAFETY: the caller took at least so much at that address.
        let filled = self.enter().and_then(|()| told("writing", unsafe { (self.fill)(address, 1, bytes) }));
        if let Err(why) = filled {
            eprintln!("{}: {why}", self.name);
        }
    }

    pub fn give_back(&self, address: u64) {
        if self.enter().is_ok() {
            // SAFETY: the address was taken by this driver and is given back once.
            unsafe { (self.free)(address) };
        }
    }
}

fn told(what: &str, code: c_int) -> Result<(), String> {
    match code {
        0 => Ok(()),
        code => Err(format!("{what} failed with code {code}")),
    }
}

/// A library that stays loaded.
struct Library(*mut c_void);

impl Library {
    /// The one that the variable names, or the usual one.
    #[cfg(not(target_feature = "crt-static"))]
    fn load(variable: &str, usual: &str) -> Result<Library, String> {
        let name = std::env::var(variable).unwrap_or_else(|_| usual.to_string());
        let path = CString::new(name.clone()).map_err(|_| format!("`{name}` is no file"))?;
        // SAFETY: a text that ends with a nul; what the library does when it is loaded is the driver's.
        let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW) };
        if handle.is_null() {
            return Err(format!("`{name}` cannot be loaded: is the driver installed?"));
        }
        Ok(Library(handle))
    }

    #[cfg(target_feature = "crt-static")]
    fn load(_: &str, usual: &str) -> Result<Library, String> {
        Err(format!("`{usual}` cannot be loaded by a static build: scripts/build-images device-engine makes the other"))
    }

    /// # Safety
    /// `T` is the type of the function that has this name.
    #[cfg(not(target_feature = "crt-static"))]
    unsafe fn symbol<T: Copy>(&self, name: &str) -> Result<T, String> {
        let text = CString::new(name).map_err(|_| name.to_string())?;
        // SAFETY: the handle is open, and the name ends with a nul.
        let found = unsafe { libc::dlsym(self.0, text.as_ptr()) };
        if found.is_null() {
            return Err(format!("the driver's library has no `{name}`"));
        }
        assert_eq!(size_of::<T>(), size_of::<*mut c_void>());
        // SAFETY: as long as a pointer, and by the caller's word of that type.
        Ok(unsafe { std::mem::transmute_copy(&found) })
    }

    /// # Safety
    /// None: nothing was loaded.
    #[cfg(target_feature = "crt-static")]
    unsafe fn symbol<T: Copy>(&self, name: &str) -> Result<T, String> {
        Err(format!("`{name}` of {:p} is in no static build", self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_has_a_name_and_no_driver_is_a_reason() {
        for (name, device) in Device::NAMES {
            assert_eq!((Device::named(name), device.name()), (Some(device), name));
        }
        assert_eq!(Device::named("tpu"), None);
        let lack = Library::load("REFERENCE_NO_SUCH_VARIABLE", "libno-such-driver.so.1");
        assert!(lack.err().unwrap().contains("cannot be loaded"));
    }
}
